"""The processes: the supervisor, the workers it forks, and the main process's side of both."""
