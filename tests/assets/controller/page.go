package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// groupVersion is that of definition.yaml.
var groupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

// Page is a text that is published in ConfigMaps.
type Page struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PageSpec   `json:"spec"`
	Status PageStatus `json:"status,omitempty"`
}

// PageSpec is the desired state of a Page.
type PageSpec struct {
	Text string `json:"text"`
	// SecretName names a Secret in the namespace of the Page. Its checksum is published with the text.
	SecretName string `json:"secretName,omitempty"`
}

// PageStatus is the observed state of a Page.
type PageStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Instance is the process that reconciled the Page last.
	Instance   string             `json:"instance,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PageList is a list of Pages.
type PageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Page `json:"items"`
}

// DeepCopy returns a copy that shares nothing with the Page.
func (in *Page) DeepCopy() *Page {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Status.Conditions != nil {
		out.Status.Conditions = make([]metav1.Condition, len(in.Status.Conditions))
		for i := range in.Status.Conditions {
			in.Status.Conditions[i].DeepCopyInto(&out.Status.Conditions[i])
		}
	}
	return &out
}

// DeepCopyObject implements runtime.Object.
func (in *Page) DeepCopyObject() runtime.Object {
	return in.DeepCopy()
}

// DeepCopyObject implements runtime.Object.
func (in *PageList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	if in.Items != nil {
		out.Items = make([]Page, len(in.Items))
		for i := range in.Items {
			out.Items[i] = *in.Items[i].DeepCopy()
		}
	}
	return &out
}

func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(groupVersion, &Page{}, &PageList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
}
