"""Values and rules that every other package uses: errors, messages, units, dates, money, figures, names, JSON."""
