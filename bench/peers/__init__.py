"""The peers: each turns a job folder's rows into its own input, runs as processes of its own, leaves its own output."""
