"""Values and rules every other room uses: errors, messages, units, dates, money, figures, names, JSON."""
