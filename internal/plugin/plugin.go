//go:build !small

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"millrace/internal/observe/meter"
)

// startTimeout bounds what a module does before its first request: the runtimes of
// languages set themselves up, and some modules read their config.
const startTimeout = 10 * time.Second

// Plugin is a module that is ready for requests.
type Plugin struct {
	options Options
	log     *slog.Logger
	client  func(*http.Request) netip.Addr
	meters  *meter.Plugin
	runtime wazero.Runtime
	code    wazero.CompiledModule
	pool    pool
}

// Deps are what a plugin works with. Log is required.
type Deps struct {
	// Client says who asks, where a trusted proxy stands in front; nil: the other end of
	// the connection.
	Client func(*http.Request) netip.Addr
	Meters *meter.Plugin // nil: counted for nobody
	Log    *slog.Logger
}

// New compiles a module and starts one instance of it.
func New(o Options, module []byte, d Deps) (_ *Plugin, err error) {
	o = o.withDefaults()
	ctx := context.Background()
	p := &Plugin{options: o, log: d.Log.With("module", o.Name()), client: d.Client, meters: cmp.Or(d.Meters, new(meter.Plugin))}
	p.meters.Instances.Set(int64(o.Instances))
	p.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithMemoryLimitPages(uint32(min(o.Memory/pageSize, mostPages))). //nolint:gosec // at most 65536
		WithCloseOnContextDone(true))
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", o.Module, errors.Join(err, p.runtime.Close(ctx)))
		}
	}()
	if p.code, err = p.runtime.CompileModule(ctx, module); err != nil {
		return nil, fmt.Errorf("this is no WebAssembly module that can be run: %w", err)
	}
	if err := suits(p.code); err != nil {
		return nil, err
	}
	tables, err := tablesOf(module)
	if err != nil {
		return nil, err
	}
	if err := fit(tables, uint64(o.Memory), func() bool { return growsTables(ctx, module) }); err != nil { //nolint:gosec // not negative
		return nil, err
	}
	if _, err := p.host(ctx); err != nil {
		return nil, err
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, p.runtime); err != nil {
		return nil, err //nolint:wrapcheck // never: nothing else has this name
	}
	p.pool.slots = make(chan struct{}, o.Instances)
	first, err := p.start()
	if err != nil {
		return nil, err
	}
	p.pool.idle = append(p.pool.idle, first)
	return p, nil
}

// Close frees the module. No request may use it.
func (p *Plugin) Close() error {
	return p.runtime.Close(context.Background()) //nolint:wrapcheck // it names nothing that we could add
}

// growsTables reports whether a module has instructions of the extension that can make
// tables larger: without it, the module is none.
func growsTables(ctx context.Context, module []byte) bool {
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2&^api.CoreFeatureReferenceTypes))
	_, err := r.CompileModule(ctx, module)
	return errors.Join(err, r.Close(ctx)) != nil
}

// What a guest exports.
const (
	handleRequest  = "handle_request"
	handleResponse = "handle_response"
	memoryName     = "memory"
)

// suits is nil for a module of the ABI.
func suits(code wazero.CompiledModule) error {
	for _, f := range code.ImportedFunctions() {
		module, name, _ := f.Import()
		if module != hostModule && module != wasi_snapshot_preview1.ModuleName {
			return fmt.Errorf("it imports %s of %s: here are %s and %s", name, module, hostModule, wasi_snapshot_preview1.ModuleName)
		}
	}
	for _, want := range []struct {
		name            string
		params, results []api.ValueType
		written         string
	}{
		{handleRequest, nil, []api.ValueType{i64}, "() -> i64"},
		{handleResponse, []api.ValueType{i32, i32}, nil, "(i32, i32) -> ()"},
	} {
		f, ok := code.ExportedFunctions()[want.name]
		if !ok {
			return fmt.Errorf("it exports no function %s: it is not a module of the ABI http-wasm", want.name)
		}
		if string(f.ParamTypes()) != string(want.params) || string(f.ResultTypes()) != string(want.results) {
			return fmt.Errorf("its function %s is not %s", want.name, want.written)
		}
	}
	if _, ok := code.ExportedMemories()[memoryName]; !ok {
		return errors.New("it exports no memory: it is not a module of the ABI http-wasm")
	}
	return nil
}

// brief is an error of a guest without the trace of its stack.
func brief(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(first, " (recovered by wazero)")
}
