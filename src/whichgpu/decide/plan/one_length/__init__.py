"""Plans for requests of one length, with capacities as `recommend` simulates them."""
