//! InferenceServices, and what OME's controller would write into them. The resource is made where the cluster has none: its
//! schema takes anything.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{SOON, until};

fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("ome.io", "v1beta1", "InferenceService"),
        "inferenceservices",
    )
}

impl Cluster {
    fn inference_services(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.ns, &resource())
    }

    async fn define_inference_services(&self) {
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": { "name": "inferenceservices.ome.io" },
            "spec": {
                "group": "ome.io", "scope": "Namespaced",
                "names": { "plural": "inferenceservices", "singular": "inferenceservice", "kind": "InferenceService" },
                "versions": [{
                    "name": "v1beta1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": anything }, "subresources": { "status": {} },
                }],
            },
        }))
        .unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        match definitions.create(&PostParams::default(), &definition).await {
            Ok(_) => {}
            Err(kube::Error::Api(why)) if why.code == 409 => {}
            Err(error) => panic!("no InferenceServices here, and none can be defined: {error}"),
        }
        until("InferenceServices are served", SOON, || async {
            self.inference_services().list(&kube::api::ListParams::default()).await.map(drop)
        })
        .await;
    }

    pub async fn create_inference_service(&self, name: &str, spec: &Value) {
        let object = json!({ "metadata": { "name": name, "namespace": self.ns }, "spec": spec });
        if !self.is_real() {
            self.the_fake().inference_services().create(object);
            return;
        }
        self.define_inference_services().await;
        let object = DynamicObject { data: object, ..DynamicObject::new(name, &resource()) };
        self.inference_services().create(&PostParams::default(), &object).await.expect("an InferenceService");
    }

    /// Its status is this. The version of the change.
    pub async fn write_inference_service(&self, name: &str, status: &Value) -> u64 {
        if !self.is_real() {
            let objects = self.the_fake().inference_services();
            return objects.update(&self.ns, name, |object| object["status"] = status.clone());
        }
        // Merged: what is null here is taken away.
        let patch = Patch::Merge(json!({ "status": status }));
        let written = self.inference_services().patch_status(name, &PatchParams::default(), &patch).await;
        written.expect("its status").metadata.resource_version.unwrap().parse().unwrap()
    }
}
