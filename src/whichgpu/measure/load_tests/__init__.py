"""Result files of load-testing tools, read as measured steps."""
