"""The backend of the tasks framework: tasks, their results, and what of their settings is wrong."""
