"""What a run costs per hour: from the profile's prices and from a dated table of list prices."""
