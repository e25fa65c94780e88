// A Terraform provider for tests. Its resources are files in a configured directory, so that a test can read them and change them
// (drift). orders.json in that directory injects faults: a step can be held, be slow, fail, crash, hang, take memory, fill the
// disk, or ignore interrupts. ledger.jsonl in it says what the provider did, when, and for which CLI.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// order is the fault of one step.
type order struct {
	// Hold keeps the step until orders.json does not hold it any more. The rest of the order applies then.
	Hold    bool   `json:"hold"`
	DelayMS int    `json:"delayMs"`
	Fail    string `json:"fail"`
	Crash   bool   `json:"crash"`
	Hang    bool   `json:"hang"`
	// MemoryMiB is what the step takes in addition.
	MemoryMiB int `json:"memoryMiB"`
	// FillDisk fills the disk of the working directory.
	FillDisk bool `json:"fillDisk"`
	// FailAfter fails after the step: the resource exists, but the state does not contain it.
	FailAfter string `json:"failAfter"`
}

// orders is read before each step, and repeatedly while a step is held.
type orders struct {
	Steps            map[string]order `json:"steps"`
	IgnoreInterrupts bool             `json:"ignoreInterrupts"`
	Secret           string           `json:"secret"`
	Value            string           `json:"value"`
}

const (
	// holdInterval is the time between two reads of the orders while a step is held.
	holdInterval = 50 * time.Millisecond
	// workInterval is the time between two entries of a step that is held or waits. A killed provider writes none, so they tell until
	// when it worked.
	workInterval = time.Second
)

// The events of the ledger.
const (
	// begun: a step begins.
	begun = "begin"
	// working: a step is held or waits.
	working = "working"
	// made: a step has created the resource.
	made = "made"
	// ended: a step ends, with or without an error.
	ended = "end"
)

// entry is a line of the ledger.
type entry struct {
	Event string `json:"event"`
	Step  string `json:"step"`
	Name  string `json:"name"`
	// Random is that of the resource that was made.
	Random string `json:"random,omitempty"`
	// At is the Unix time in nanoseconds.
	At int64 `json:"at"`
	// Pod is the host name, which is the name of the pod on a cluster.
	Pod string `json:"pod"`
	// CLI is the process that started the provider.
	CLI int `json:"cli"`
	// Provider is this process.
	Provider int `json:"provider"`
}

// cli is the parent at the start: a provider that outlives it has another one.
var cli = os.Getppid()

// of returns the order of a step: that for the resource, or that for all.
func (o orders) of(step, name string) order {
	if own, isNamed := o.Steps[step+" "+name]; isNamed {
		return own
	}
	return o.Steps[step]
}

// thing is the file of a resource.
type thing struct {
	Name    string  `json:"name"`
	Content *string `json:"content"`
	Random  string  `json:"random"`
}

type provider struct {
	// Unused calls are not implemented and crash the provider.
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
	result := &tfprotov6.SchemaAttribute{Name: name, Type: tftypes.String}
	mark(result)
	return result
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
	defer p.end("read", id)
	if _, err := p.obey("read", id, text(state["secret"])); err != nil {
		return &tfprotov6.ReadResourceResponse{NewState: r.CurrentState, Diagnostics: failed(err)}, nil
	}
	current, err := p.load(id)
	if errors.Is(err, os.ErrNotExist) {
		removed, err := tfprotov6.NewDynamicValue(thingType, tftypes.NewValue(thingType, nil))
		return &tfprotov6.ReadResourceResponse{NewState: &removed}, err
	}
	if err != nil {
		return &tfprotov6.ReadResourceResponse{NewState: r.CurrentState, Diagnostics: failed(err)}, nil
	}
	value, err := current.value(text(state["secret"]))
	return &tfprotov6.ReadResourceResponse{NewState: value}, err
}

func (p *provider) PlanResourceChange(_ context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	prior, err := object(r.PriorState, thingType)
	if err != nil {
		return nil, err
	}
	proposed, err := object(r.ProposedNewState, thingType)
	if err != nil || proposed == nil {
		return &tfprotov6.PlanResourceChangeResponse{PlannedState: r.ProposedNewState}, err
	}
	defer p.end("plan", text(proposed["name"]))
	if _, err := p.obey("plan", text(proposed["name"]), text(prior["secret"])); err != nil {
		return &tfprotov6.PlanResourceChangeResponse{PlannedState: r.ProposedNewState, Diagnostics: failed(err)}, nil
	}
	response := &tfprotov6.PlanResourceChangeResponse{}
	replace := prior != nil && !prior["name"].Equal(proposed["name"])
	if replace {
		response.RequiresReplace = []*tftypes.AttributePath{tftypes.NewAttributePath().WithAttributeName("name")}
	}
	if prior == nil || replace {
		for _, name := range []string{"id", "random", "secret"} {
			proposed[name] = tftypes.NewValue(tftypes.String, tftypes.UnknownValue)
		}
	}
	planned, err := tfprotov6.NewDynamicValue(thingType, tftypes.NewValue(thingType, proposed))
	response.PlannedState = &planned
	return response, err
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
	unchanged := func(err error) (*tfprotov6.ApplyResourceChangeResponse, error) {
		return &tfprotov6.ApplyResourceChangeResponse{NewState: r.PriorState, Diagnostics: failed(err)}, nil
	}
	if planned == nil {
		id := text(prior["id"])
		defer p.end("delete", id)
		order, err := p.obey("delete", id, text(prior["secret"]))
		if err != nil {
			return unchanged(err)
		}
		if err := os.Remove(p.file(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return unchanged(err)
		}
		if order.FailAfter != "" {
			return unchanged(errors.New(order.FailAfter))
		}
		return &tfprotov6.ApplyResourceChangeResponse{NewState: r.PlannedState}, nil
	}
	step, resource := "update", thing{Name: text(planned["name"])}
	if content := planned["content"]; !content.IsNull() {
		value := text(content)
		resource.Content = &value
	}
	kindSecret := ""
	if prior == nil {
		step = "create"
	} else {
		resource.Random, kindSecret = text(prior["random"]), text(prior["secret"])
	}
	defer p.end(step, resource.Name)
	order, err := p.obey(step, resource.Name, kindSecret)
	if err != nil {
		return unchanged(err)
	}
	if prior == nil {
		if _, err := os.Stat(p.file(resource.Name)); err == nil {
			return unchanged(fmt.Errorf("thing %q exists already", resource.Name))
		}
		resource.Random = fmt.Sprintf("%x", time.Now().UnixNano())
		orders, err := p.orders()
		if err != nil {
			return unchanged(err)
		}
		kindSecret = orders.Secret
	}
	if err := p.store(resource); err != nil {
		return unchanged(err)
	}
	if prior == nil {
		if err := p.record(entry{Event: made, Step: step, Name: resource.Name, Random: resource.Random}); err != nil {
			return unchanged(err)
		}
	}
	if order.FailAfter != "" {
		return unchanged(errors.New(order.FailAfter))
	}
	value, err := resource.value(kindSecret)
	return &tfprotov6.ApplyResourceChangeResponse{NewState: value}, err
}

func (p *provider) ReadDataSource(context.Context, *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	defer p.end("value", "")
	if _, err := p.obey("value", "", ""); err != nil {
		return &tfprotov6.ReadDataSourceResponse{Diagnostics: failed(err)}, nil
	}
	orders, err := p.orders()
	if err != nil {
		return &tfprotov6.ReadDataSourceResponse{Diagnostics: failed(err)}, nil
	}
	value, err := tfprotov6.NewDynamicValue(valueType, tftypes.NewValue(valueType, map[string]tftypes.Value{
		"value": tftypes.NewValue(tftypes.String, orders.Value),
	}))
	return &tfprotov6.ReadDataSourceResponse{State: &value}, err
}

// record adds an entry to the ledger, with the time and the processes.
func (p *provider) record(line entry) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	line.At, line.Pod, line.CLI, line.Provider = time.Now().UnixNano(), host, cli, os.Getpid()
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	ledger, err := os.OpenFile(filepath.Join(p.world, "ledger.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	// One write: a reader sees the whole line or nothing of it.
	_, err = ledger.Write(append(text, '\n'))
	return errors.Join(err, ledger.Close())
}

// end records the end of a step. A test may have removed the directory.
func (p *provider) end(step, name string) {
	_ = p.record(entry{Event: ended, Step: step, Name: name})
}

// wait waits, and records meanwhile that the step works. It returns false if it was interrupted.
func (p *provider) wait(step, name string, duration time.Duration, stop <-chan struct{}) (bool, error) {
	end := time.Now().Add(duration)
	for left := duration; left > 0; left = time.Until(end) {
		select {
		case <-time.After(min(left, workInterval)):
		case <-stop:
			return false, nil
		}
		if err := p.record(entry{Event: working, Step: step, Name: name}); err != nil {
			return false, err
		}
	}
	return true, nil
}

// hold waits until the orders do not hold the step, and records meanwhile that it works. It returns false if it was interrupted.
func (p *provider) hold(step, name string, stop <-chan struct{}) (bool, error) {
	recorded := time.Now()
	for {
		select {
		case <-time.After(holdInterval):
		case <-stop:
			return false, nil
		}
		now, err := p.orders()
		if err != nil {
			return false, err
		}
		if !now.of(step, name).Hold {
			return true, nil
		}
		if time.Since(recorded) < workInterval {
			continue
		}
		recorded = time.Now()
		if err := p.record(entry{Event: working, Step: step, Name: name}); err != nil {
			return false, err
		}
	}
}

// obey reads the orders, records the step, and executes its order: a test that sees the step in the ledger may replace the orders.
// secret is the secret attribute in the state.
func (p *provider) obey(step, name, secret string) (order, error) {
	all, err := p.orders()
	if err != nil {
		return order{}, err
	}
	if err := p.record(entry{Event: begun, Step: step, Name: name}); err != nil {
		return order{}, err
	}
	own := all.of(step, name)
	if own.Crash {
		os.Exit(3)
	}
	taken := take(own.MemoryMiB)
	defer runtime.KeepAlive(taken)
	if own.FillDisk {
		if err := fillDisk(); err != nil {
			return own, err
		}
	}
	stop := p.stop
	if all.IgnoreInterrupts {
		stop = nil
	}
	delay := time.Duration(own.DelayMS) * time.Millisecond
	if own.Hang {
		delay = 24 * time.Hour
	}
	goesOn := true
	if own.Hold {
		goesOn, err = p.hold(step, name, stop)
	}
	if goesOn && err == nil {
		goesOn, err = p.wait(step, name, delay, stop)
	}
	if err != nil {
		return own, err
	}
	if !goesOn {
		return own, fmt.Errorf("%s of %q was interrupted", step, name)
	}
	if own.Fail != "" {
		// A careless provider quotes sensitive values.
		quote := strings.NewReplacer("{token}", p.token, "{environment}", os.Getenv("TRIAL_TOKEN"), "{secret}", secret)
		return own, errors.New(quote.Replace(own.Fail))
	}
	return own, nil
}

// take returns memory of this size, of which every page is used.
func take(mebibytes int) []byte {
	memory := make([]byte, mebibytes<<20)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return memory
}

// fillDisk writes a file into the working directory until there is no space left. The file stays.
func fillDisk() error {
	file, err := os.CreateTemp(".", "full-")
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for len(block) > 0 && err == nil {
		if _, err = file.Write(block); errors.Is(err, syscall.ENOSPC) {
			block, err = block[:len(block)/2], nil
		}
	}
	return errors.Join(err, file.Close())
}

func (p *provider) orders() (orders, error) {
	var all orders
	raw, err := os.ReadFile(filepath.Join(p.world, "orders.json"))
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	return all, err
}

func (p *provider) file(id string) string {
	return filepath.Join(p.world, "things", id+".json")
}

func (p *provider) load(id string) (thing, error) {
	var resource thing
	raw, err := os.ReadFile(p.file(id))
	if err == nil {
		err = json.Unmarshal(raw, &resource)
	}
	return resource, err
}

func (p *provider) store(resource thing) error {
	raw, err := json.Marshal(resource)
	if err != nil {
		return err
	}
	temporary := p.file(resource.Name) + ".new"
	if err := os.WriteFile(temporary, raw, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, p.file(resource.Name))
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

// object returns the attributes of a value, or nil for null.
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

// text returns a string, or an empty one for null and unknown values.
func text(value tftypes.Value) string {
	var result string
	if !value.IsKnown() || value.IsNull() || value.As(&result) != nil {
		return ""
	}
	return result
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
