"""The metric families of vLLM that no signal and no fact reads, each with the reason why not.

Read from vLLM 0.33.0. A family is named without the suffix of a histogram or counter.
"""

from collections.abc import Mapping
from types import MappingProxyType

_REASONS: Mapping[str, str] = {
    "a mean over blocks: how long they lie unused before they go says what these would": (
        "kv_block_lifetime_seconds kv_block_reuse_gap_seconds"
    ),
    "the part of a request that its queue, prefill and decode times give together": (
        "request_inference_time_seconds"
    ),
    "preemptions are counted as they happen; this counts them when a request ends": "request_num_preemptions",
    "the greatest output of a request's choices: its mean hides the one that was long": (
        "request_max_num_generation_tokens"
    ),
    "an estimate from the model's shape that only a device's own limits make a judgement": (
        "estimated_read_bytes_per_gpu estimated_write_bytes_per_gpu"
    ),
    "how large and how long transfers are depends on fabric, model and layout: no value is wrong in itself": (
        "nixl_bytes_transferred nixl_num_descriptors nixl_post_time_seconds"
        " mooncake_bytes_transferred mooncake_num_descriptors"
        " umbp_transfer_submitted umbp_transfer_completed umbp_transfer_bytes"
        " mooncake_store_operation mooncake_store_operation_bytes mooncake_store_operation_keys"
        " mooncake_store_operation_time_seconds hf3fs_load_duration_seconds hf3fs_save_duration_seconds"
    ),
    "a lost notification is felt as a lease that expires, which is read": "nixl_num_failed_notifications",
    "sizes and the fill of a medium: a cache is meant to be full, and what it cannot take is counted": (
        "kv_offload_config_info kv_offload_cpu_allocation_size kv_offload_cpu_cache_usage_perc"
        " kv_offload_cpu_cache_read_usage_perc kv_offload_cpu_cache_write_usage_perc"
        " kv_offload_load_size kv_offload_store_size kv_offload_size kv_offload_total_bytes kv_offload_total_time"
        " kv_offload_tiering_primary_read_usage_perc kv_offload_tiering_primary_write_usage_perc"
        " kv_offload_tiering_read_bytes kv_offload_tiering_write_bytes"
        " kv_offload_tiering_read_time kv_offload_tiering_write_time"
        " simple_kv_offload_info simple_kv_offload_used_blocks"
    ),
    "work in the background: nobody waits for it until it fails or is dropped, which is read": (
        "kv_offload_store_time kv_offload_tiering_active_cascade_jobs kv_offload_tiering_active_promotion_jobs"
        " kv_offload_tiering_backpressure_blocks_dropped kv_offload_tiering_backpressure_store_latency_ema"
        " simple_kv_offload_pending_store_blocks simple_kv_offload_load_blocks simple_kv_offload_save_outcomes"
    ),
    "a part of the time to first token that the queue time holds already": (
        "kv_offload_lookup_async_delay_seconds kv_offload_lookup_sync_delay_seconds"
        " kv_offload_tiering_lookup_async_delay_seconds kv_offload_tiering_lookup_sync_delay_seconds"
        " kv_offload_tiering_promotion_latency_seconds"
    ),
    "a hit of a lower tier is a hit of the connector, whose look-ups and hits are read": (
        "kv_offload_tiering_chunk_hits kv_offload_tiering_chunk_queries"
    ),
    "a sparse cache in host memory; how its figures look in a sick server was never seen": (
        "hisparse_cache_hits hisparse_cache_misses hisparse_host_block_idle_before_evict_seconds"
        " hisparse_host_block_lifetime_seconds hisparse_host_block_reuse_gap_seconds hisparse_host_cache_usage_perc"
        " hisparse_host_to_device_bytes hisparse_pending_page_transfers"
    ),
    "operations that somebody started and waits for; traffic to an engine that sleeps is read": (
        "sleep_mode_operation_duration_seconds sleep_mode_operations_in_flight"
        " rl_weight_update_operation_duration_seconds"
    ),
    "what a parser made of an answer is a matter of model and prompt, not of the server": (
        "tool_call_parser_invocations watermark_requests"
    ),
    "counts of another interface, which requests and their times do not depend on": (
        "websocket_connections websocket_connections_active websocket_connection_duration_seconds"
    ),
    "models that denoise: their steps are counted as those of others are": (
        "diffusion_num_canvas_positions diffusion_num_committed_tokens diffusion_num_denoising_steps"
    ),
}

UNREAD: Mapping[str, str] = MappingProxyType(
    {family: reason for reason, families in _REASONS.items() for family in families.split()}
)
