"""A module for each page, with one `Page`: what it shows, what an administrator may do there, and
which methods of the API it needs. It asks the server through its `Visit` alone.
"""
