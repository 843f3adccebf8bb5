"""The MSI engine: K paths over one shared prefix. Knows no host and no embedding library."""
