"""The planner as it runs: a real server with its log on the disk, agents and a client in processes of their own."""
