"""Pages in: from a server (`fetch`), from a file (`recording`); their text into values (`exposition`)."""
