"""One module per page, with one `Page`: what it shows, what an administrator may do there, and
which API methods it needs. It only accesses the server through its `Visit`."""
