// A Terraform provider for the suites. Its resources are files in a folder that the configuration names, so a test can
// look at them, change them behind the state's back (drift) and count what was done to them. What a step does beside its
// work stands in the folder's orders.json: it can be slow, fail, crash, hang, and not heed an interrupt.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// order is what one step does beside its work.
type order struct {
	DelayMS int    `json:"delayMs"`
	Fail    string `json:"fail"`
	Crash   bool   `json:"crash"`
	Hang    bool   `json:"hang"`
	// FailAfter fails once the work is done: the resource is there, and the state does not know.
	FailAfter string `json:"failAfter"`
}

// orders are read anew before each step.
type orders struct {
	Steps            map[string]order `json:"steps"`
	IgnoreInterrupts bool             `json:"ignoreInterrupts"`
	Secret           string           `json:"secret"`
	Value            string           `json:"value"`
}

// thing is a resource as it lies in the folder.
type thing struct {
	Name    string  `json:"name"`
	Content *string `json:"content"`
	Random  string  `json:"random"`
}

type provider struct {
	// Calls that no configuration of the suites leads to are not there; they would crash the provider.
	tfprotov6.ProviderServer
	world string
	token string
	stop  chan struct{}
	once  sync.Once
}

var (
	thingType = tftypes.Object{AttributeTypes: map[string]tftypes.Type{
		"id": tftypes.String, "name": tftypes.String, "content": tftypes.String,
		"random": tftypes.String, "secret": tftypes.String,
	}}
	valueType  = tftypes.Object{AttributeTypes: map[string]tftypes.Type{"value": tftypes.String}}
	configType = tftypes.Object{AttributeTypes: map[string]tftypes.Type{
		"world": tftypes.String, "token": tftypes.String,
	}}
)

func attribute(name string, mark func(*tfprotov6.SchemaAttribute)) *tfprotov6.SchemaAttribute {
	found := &tfprotov6.SchemaAttribute{Name: name, Type: tftypes.String}
	mark(found)
	return found
}

func required(a *tfprotov6.SchemaAttribute) { a.Required = true }
func optional(a *tfprotov6.SchemaAttribute) { a.Optional = true }
func computed(a *tfprotov6.SchemaAttribute) { a.Computed = true }
func secret(a *tfprotov6.SchemaAttribute)   { a.Computed = true; a.Sensitive = true }
func token(a *tfprotov6.SchemaAttribute)    { a.Optional = true; a.Sensitive = true }

func schema(attributes ...*tfprotov6.SchemaAttribute) *tfprotov6.Schema {
	return &tfprotov6.Schema{Block: &tfprotov6.SchemaBlock{Attributes: attributes}}
}

func (p *provider) GetMetadata(context.Context, *tfprotov6.GetMetadataRequest) (*tfprotov6.GetMetadataResponse, error) {
	return &tfprotov6.GetMetadataResponse{
		Resources:   []tfprotov6.ResourceMetadata{{TypeName: "trial_thing"}},
		DataSources: []tfprotov6.DataSourceMetadata{{TypeName: "trial_value"}},
	}, nil
}

func (p *provider) GetProviderSchema(context.Context, *tfprotov6.GetProviderSchemaRequest) (*tfprotov6.GetProviderSchemaResponse, error) {
	return &tfprotov6.GetProviderSchemaResponse{
		Provider: schema(attribute("token", token), attribute("world", required)),
		ResourceSchemas: map[string]*tfprotov6.Schema{"trial_thing": schema(
			attribute("content", optional), attribute("id", computed), attribute("name", required),
			attribute("random", computed), attribute("secret", secret),
		)},
		DataSourceSchemas: map[string]*tfprotov6.Schema{"trial_value": schema(attribute("value", computed))},
	}, nil
}

func (p *provider) GetResourceIdentitySchemas(context.Context, *tfprotov6.GetResourceIdentitySchemasRequest) (*tfprotov6.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov6.GetResourceIdentitySchemasResponse{}, nil
}

func (p *provider) GetFunctions(context.Context, *tfprotov6.GetFunctionsRequest) (*tfprotov6.GetFunctionsResponse, error) {
	return &tfprotov6.GetFunctionsResponse{}, nil
}

func (p *provider) ValidateProviderConfig(_ context.Context, r *tfprotov6.ValidateProviderConfigRequest) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return &tfprotov6.ValidateProviderConfigResponse{PreparedConfig: r.Config}, nil
}

func (p *provider) ConfigureProvider(_ context.Context, r *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	config, err := object(r.Config, configType)
	if err != nil {
		return nil, err
	}
	p.world, p.token = text(config["world"]), text(config["token"])
	return &tfprotov6.ConfigureProviderResponse{Diagnostics: failed(os.MkdirAll(filepath.Join(p.world, "things"), 0o755))}, nil
}

func (p *provider) StopProvider(context.Context, *tfprotov6.StopProviderRequest) (*tfprotov6.StopProviderResponse, error) {
	p.once.Do(func() { close(p.stop) })
	return &tfprotov6.StopProviderResponse{}, nil
}

func (p *provider) ValidateResourceConfig(context.Context, *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return &tfprotov6.ValidateResourceConfigResponse{}, nil
}

func (p *provider) ValidateDataResourceConfig(context.Context, *tfprotov6.ValidateDataResourceConfigRequest) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	return &tfprotov6.ValidateDataResourceConfigResponse{}, nil
}

func (p *provider) UpgradeResourceState(_ context.Context, r *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	state, err := r.RawState.Unmarshal(thingType)
	if err != nil {
		return nil, err
	}
	upgraded, err := tfprotov6.NewDynamicValue(thingType, state)
	return &tfprotov6.UpgradeResourceStateResponse{UpgradedState: &upgraded}, err
}

func (p *provider) ReadResource(_ context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	state, err := object(r.CurrentState, thingType)
	if err != nil {
		return nil, err
	}
	id := text(state["id"])
	if _, err := p.obey("read", id, text(state["secret"])); err != nil {
		return &tfprotov6.ReadResourceResponse{NewState: r.CurrentState, Diagnostics: failed(err)}, nil
	}
	found, err := p.load(id)
	if errors.Is(err, os.ErrNotExist) {
		gone, err := tfprotov6.NewDynamicValue(thingType, tftypes.NewValue(thingType, nil))
		return &tfprotov6.ReadResourceResponse{NewState: &gone}, err
	}
	if err != nil {
		return &tfprotov6.ReadResourceResponse{NewState: r.CurrentState, Diagnostics: failed(err)}, nil
	}
	value, err := found.value(text(state["secret"]))
	return &tfprotov6.ReadResourceResponse{NewState: value}, err
}

func (p *provider) PlanResourceChange(_ context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	prior, err := object(r.PriorState, thingType)
	if err != nil {
		return nil, err
	}
	wanted, err := object(r.ProposedNewState, thingType)
	if err != nil || wanted == nil {
		return &tfprotov6.PlanResourceChangeResponse{PlannedState: r.ProposedNewState}, err
	}
	if _, err := p.obey("plan", text(wanted["name"]), text(prior["secret"])); err != nil {
		return &tfprotov6.PlanResourceChangeResponse{PlannedState: r.ProposedNewState, Diagnostics: failed(err)}, nil
	}
	answer := &tfprotov6.PlanResourceChangeResponse{}
	replaced := prior != nil && !prior["name"].Equal(wanted["name"])
	if replaced {
		answer.RequiresReplace = []*tftypes.AttributePath{tftypes.NewAttributePath().WithAttributeName("name")}
	}
	if prior == nil || replaced {
		for _, name := range []string{"id", "random", "secret"} {
			wanted[name] = tftypes.NewValue(tftypes.String, tftypes.UnknownValue)
		}
	}
	planned, err := tfprotov6.NewDynamicValue(thingType, tftypes.NewValue(thingType, wanted))
	answer.PlannedState = &planned
	return answer, err
}

func (p *provider) ApplyResourceChange(_ context.Context, r *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	prior, err := object(r.PriorState, thingType)
	if err != nil {
		return nil, err
	}
	planned, err := object(r.PlannedState, thingType)
	if err != nil {
		return nil, err
	}
	kept := func(err error) (*tfprotov6.ApplyResourceChangeResponse, error) {
		return &tfprotov6.ApplyResourceChangeResponse{NewState: r.PriorState, Diagnostics: failed(err)}, nil
	}
	if planned == nil {
		id := text(prior["id"])
		given, err := p.obey("delete", id, text(prior["secret"]))
		if err != nil {
			return kept(err)
		}
		if err := os.Remove(p.file(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return kept(err)
		}
		if given.FailAfter != "" {
			return kept(errors.New(given.FailAfter))
		}
		return &tfprotov6.ApplyResourceChangeResponse{NewState: r.PlannedState}, nil
	}
	step, made := "update", thing{Name: text(planned["name"])}
	if content := planned["content"]; !content.IsNull() {
		told := text(content)
		made.Content = &told
	}
	kindSecret := ""
	if prior == nil {
		step = "create"
	} else {
		made.Random, kindSecret = text(prior["random"]), text(prior["secret"])
	}
	given, err := p.obey(step, made.Name, kindSecret)
	if err != nil {
		return kept(err)
	}
	if prior == nil {
		if _, err := os.Stat(p.file(made.Name)); err == nil {
			return kept(fmt.Errorf("thing %q exists already", made.Name))
		}
		made.Random = fmt.Sprintf("%x", time.Now().UnixNano())
		told, err := p.orders()
		if err != nil {
			return kept(err)
		}
		kindSecret = told.Secret
	}
	if err := p.store(made); err != nil {
		return kept(err)
	}
	if given.FailAfter != "" {
		return kept(errors.New(given.FailAfter))
	}
	value, err := made.value(kindSecret)
	return &tfprotov6.ApplyResourceChangeResponse{NewState: value}, err
}

func (p *provider) ReadDataSource(context.Context, *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	if _, err := p.obey("value", "", ""); err != nil {
		return &tfprotov6.ReadDataSourceResponse{Diagnostics: failed(err)}, nil
	}
	told, err := p.orders()
	if err != nil {
		return &tfprotov6.ReadDataSourceResponse{Diagnostics: failed(err)}, nil
	}
	value, err := tfprotov6.NewDynamicValue(valueType, tftypes.NewValue(valueType, map[string]tftypes.Value{
		"value": tftypes.NewValue(tftypes.String, told.Value),
	}))
	return &tfprotov6.ReadDataSourceResponse{State: &value}, err
}

// obey writes the step down and does what the orders say of it; secret is what the state holds of the thing.
func (p *provider) obey(step, name, secret string) (order, error) {
	log, err := os.OpenFile(filepath.Join(p.world, "calls.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return order{}, err
	}
	_, err = fmt.Fprintf(log, "%s %s\n", step, name)
	if err := errors.Join(err, log.Close()); err != nil {
		return order{}, err
	}
	told, err := p.orders()
	if err != nil {
		return order{}, err
	}
	given, named := told.Steps[step+" "+name]
	if !named {
		given = told.Steps[step]
	}
	if given.Crash {
		os.Exit(3)
	}
	stop := p.stop
	if told.IgnoreInterrupts {
		stop = nil
	}
	wait := time.Duration(given.DelayMS) * time.Millisecond
	if given.Hang {
		wait = 24 * time.Hour
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-stop:
			return given, fmt.Errorf("%s of %q was interrupted", step, name)
		}
	}
	if given.Fail != "" {
		// A careless provider tells what it was given.
		told := strings.NewReplacer("{token}", p.token, "{environment}", os.Getenv("TRIAL_TOKEN"), "{secret}", secret)
		return given, errors.New(told.Replace(given.Fail))
	}
	return given, nil
}

func (p *provider) orders() (orders, error) {
	var told orders
	raw, err := os.ReadFile(filepath.Join(p.world, "orders.json"))
	if errors.Is(err, os.ErrNotExist) {
		return told, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &told)
	}
	return told, err
}

func (p *provider) file(id string) string {
	return filepath.Join(p.world, "things", id+".json")
}

func (p *provider) load(id string) (thing, error) {
	var found thing
	raw, err := os.ReadFile(p.file(id))
	if err == nil {
		err = json.Unmarshal(raw, &found)
	}
	return found, err
}

func (p *provider) store(made thing) error {
	raw, err := json.Marshal(made)
	if err != nil {
		return err
	}
	beside := p.file(made.Name) + ".new"
	if err := os.WriteFile(beside, raw, 0o644); err != nil {
		return err
	}
	return os.Rename(beside, p.file(made.Name))
}

func (t thing) value(secret string) (*tfprotov6.DynamicValue, error) {
	content := tftypes.NewValue(tftypes.String, nil)
	if t.Content != nil {
		content = tftypes.NewValue(tftypes.String, *t.Content)
	}
	value, err := tfprotov6.NewDynamicValue(thingType, tftypes.NewValue(thingType, map[string]tftypes.Value{
		"id": tftypes.NewValue(tftypes.String, t.Name), "name": tftypes.NewValue(tftypes.String, t.Name),
		"content": content, "random": tftypes.NewValue(tftypes.String, t.Random),
		"secret": tftypes.NewValue(tftypes.String, secret),
	}))
	return &value, err
}

// object gives the attributes of a value; none of a null one.
func object(value *tfprotov6.DynamicValue, kind tftypes.Type) (map[string]tftypes.Value, error) {
	if value == nil {
		return nil, nil
	}
	decoded, err := value.Unmarshal(kind)
	if err != nil || decoded.IsNull() {
		return nil, err
	}
	attributes := map[string]tftypes.Value{}
	return attributes, decoded.As(&attributes)
}

// text gives a string; empty for null and for what is not known yet.
func text(value tftypes.Value) string {
	var found string
	if !value.IsKnown() || value.IsNull() || value.As(&found) != nil {
		return ""
	}
	return found
}

func failed(err error) []*tfprotov6.Diagnostic {
	if err == nil {
		return nil
	}
	return []*tfprotov6.Diagnostic{{Severity: tfprotov6.DiagnosticSeverityError, Summary: err.Error()}}
}

func main() {
	serve := func() tfprotov6.ProviderServer { return &provider{stop: make(chan struct{})} }
	if err := tf6server.Serve("sluice.test/sluice/trial", serve); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
