"""Who is notified of incidents: alerts, their queues, Alertmanager, webhooks, and the receiver of others' alerts."""
