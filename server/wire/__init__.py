"""What goes over the wire: requests in and checked, answers and errors out, the limits of both."""
