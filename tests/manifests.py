"""Holds Kubernetes manifests against the published schemas of several Kubernetes versions; an unknown field is a mistake.

    manifests.py OLDEST FILE...

OLDEST is a version such as 1.27: it and all later ones that the package `kubernetes-validate` carries are asked. Prints one JSON
object: the versions, and the mistakes by document. Exit code 1 if there is one.
"""

import json
import sys

import kubernetes_validate
import yaml


class OnceEachLoader(yaml.SafeLoader):
    """PyYAML lets the last of two equal keys win, without a word."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"given twice: {twice}", node.start_mark)
        return super().construct_mapping(node, deep)


def number(version):
    return tuple(int(part) for part in version.split(".")[:2])


def main(oldest, files):
    carried = dict.fromkeys(kubernetes_validate.utils.all_versions())  # twice each: strict or not
    versions = [version for version in carried if number(version) >= number(oldest)]
    mistakes = {}
    for file in files:
        with open(file, encoding="utf-8") as text:
            documents = [document for document in yaml.load_all(text, OnceEachLoader) if document]
        for document in documents:
            name = f"{file}: {document['kind']}/{document['metadata']['name']}"
            for version in versions:
                try:
                    kubernetes_validate.validate(document, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    at = ".".join(map(str, error.path))
                    mistakes.setdefault(name, []).append(f"{version}: {at}: {error.message[:300]}")
                except kubernetes_validate.SchemaNotFoundError as error:
                    mistakes.setdefault(name, []).append(f"{version}: {error.message}")
    print(json.dumps({"versions": versions, "mistakes": mistakes}, indent=1))
    return 1 if mistakes or not versions else 0


sys.exit(main(sys.argv[1], sys.argv[2:]))
