// Prints the results of kube-apiserver's own packages for each case of cases.json: the expected results of the schema tests.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

type kase struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Object json.RawMessage `json:"object"`
	Old    json.RawMessage `json:"old,omitempty"`
}
type result struct {
	Name    string      `json:"name"`
	Dropped []string    `json:"dropped"`
	Object  interface{} `json:"object"`
	Errors  []string    `json:"errors"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func decode(raw json.RawMessage) map[string]interface{} {
	var out map[string]interface{}
	check(utiljson.Unmarshal(raw, &out))
	return out
}

func blocking(errs field.ErrorList) bool {
	for _, e := range errs {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

func run(c kase) result {
	var ext v1.JSONSchemaProps
	check(json.Unmarshal(c.Schema, &ext))
	var in apiextensions.JSONSchemaProps
	check(v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&ext, &in, nil))
	ss, err := structural.NewStructural(&in)
	check(err)
	sv, _, err := validation.NewSchemaValidator(&in)
	check(err)
	prepare := func(raw json.RawMessage) (map[string]interface{}, []string) {
		obj := decode(raw)
		dropped := pruning.PruneWithOptions(obj, ss, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		defaulting.PruneNonNullableNullsWithoutDefaults(obj, ss)
		defaulting.Default(obj, ss)
		return obj, dropped
	}
	obj, dropped := prepare(c.Object)
	celv := cel.NewValidator(ss, true, celconfig.PerCallLimit)
	var errs field.ErrorList
	var old map[string]interface{}
	var opts []cel.Option
	if len(c.Old) > 0 {
		old, _ = prepare(c.Old)
		corr := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: ss})
		opts = append(opts, cel.WithRatcheting(corr))
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, obj, old, sv, validation.WithRatcheting(corr))...)
		errs = append(errs, objectmeta.Validate(nil, obj, ss, false)...)
		if len(listtype.ValidateListSetsAndMaps(nil, ss, old)) == 0 {
			errs = append(errs, listtype.ValidateListSetsAndMaps(nil, ss, obj)...)
		}
	} else {
		errs = append(errs, validation.ValidateCustomResource(nil, obj, sv)...)
		errs = append(errs, objectmeta.Validate(nil, obj, ss, false)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, ss, obj)...)
	}
	if celv != nil {
		if blocking(errs) {
			errs = append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
		} else {
			var o interface{}
			if old != nil {
				o = old
			}
			e, _ := celv.Validate(context.Background(), nil, ss, obj, o, celconfig.RuntimeCELCostBudget, opts...)
			errs = append(errs, e...)
		}
	}
	out := result{Name: c.Name, Dropped: append([]string{}, dropped...), Object: obj, Errors: []string{}}
	for _, e := range errs {
		out.Errors = append(out.Errors, e.Error())
	}
	sort.Strings(out.Errors)
	return out
}

func main() {
	raw, err := os.ReadFile(os.Args[1])
	check(err)
	var cases []kase
	check(json.Unmarshal(raw, &cases))
	fmt.Println("[")
	for i, c := range cases {
		line, err := json.Marshal(run(c))
		check(err)
		comma := ","
		if i == len(cases)-1 {
			comma = ""
		}
		fmt.Printf("  %s%s\n", line, comma)
	}
	fmt.Println("]")
}
