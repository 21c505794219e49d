"""What the commands take and show: types of options, tables, JSON, errors."""
