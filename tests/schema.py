"""Holds files, YAML or JSON, against a JSON Schema.

    schema.py SCHEMA FILE...

Prints one JSON object: the mistakes by file, empty where there are none. Exit code 1 if there is one.
"""

import json
import sys

import jsonschema
import yaml


def main(schema, files):
    with open(schema, encoding="utf-8") as text:
        schema = json.load(text)
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    found = {}
    for file in files:
        with open(file, encoding="utf-8") as text:
            document = yaml.safe_load(text)
        mistakes = validator(schema).iter_errors(document)
        found[file] = [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in mistakes]
    print(json.dumps(found))
    return any(found.values())


sys.exit(main(sys.argv[1], sys.argv[2:]))
