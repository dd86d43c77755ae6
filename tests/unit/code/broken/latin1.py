x = "\xe9"
# café
