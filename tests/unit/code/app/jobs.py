import app.helpers as helpers
from app.runtime import load

engine = load("plan")
print(helpers.sizes(engine, ["x"]))
print(helpers.rows({"num_bindings": 1}))
