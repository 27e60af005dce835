// Package plugin runs an operator's own logic between the server and the job of a route:
// WebAssembly modules (guests) of the ABI http-wasm, which Traefik, Dapr and others run as
// well. A guest sees a request before the job does and the answer behind it, each by
// functions of the host module http_handler. See https://http-wasm.io/http-handler-abi/.
//
// A guest has memory of its own and sees nothing of the process but those functions. It
// serves one request at a time, from handle_request to the end of handle_response; Options
// bound how many instances of it there are, their memory, and how long a call may compute.
// An instance whose call has failed is never used again.
package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"millrace/internal/bytesize"
)

// Options are one entry of "plugins".
type Options struct {
	// Module is the file of a WebAssembly module for the ABI http-wasm.
	Module string `yaml:"module"`
	// Config is what the module gets from get_config, as it stands here: often JSON.
	Config string `yaml:"config"`
	// Memory is how much memory an instance may have. Default 16MiB.
	Memory bytesize.Size `yaml:"memory"`
	// Timeout is how long the module may compute in each of its two calls for a request.
	// Waiting for the client's body does not count. Default 1s.
	Timeout time.Duration `yaml:"timeout"`
	// Instances is how many requests the module may serve at once. Others wait, for as
	// long as timeout says, and then get 503. Default 64.
	Instances int `yaml:"instances"`
	// BodyBytes is how much of a body is held for the module, where it asks for
	// bodies: of the request, and of the answer. Default 1MiB.
	BodyBytes bytesize.Size `yaml:"body_bytes"`
}

// The defaults of Options.
const (
	defaultMemory    = 16 << 20
	defaultTimeout   = time.Second
	defaultInstances = 64
	defaultBodyBytes = 1 << 20
)

const (
	pageSize  = 64 << 10 // of WebAssembly's memory
	mostPages = 65536    // 4 GiB
	// maxModule bounds a module's file: those of Go have a few MiB.
	maxModule = 64 << 20
	// startTimeout bounds what a module does before its first request: the runtimes of
	// languages set themselves up, and some modules read their config.
	startTimeout = 10 * time.Second
)

// Check returns what is wrong with the options, by the key it is wrong with. It does not
// look into the module.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	if o.Module == "" {
		faults["module"] = errors.New("a plugin needs \"module\": the file of a WebAssembly module")
	}
	if o.Memory != 0 && (o.Memory < pageSize || o.Memory > mostPages*pageSize) {
		faults["memory"] = errors.New("between 64KiB and 4GiB")
	}
	if o.Timeout < 0 || o.Timeout > time.Minute {
		faults["timeout"] = errors.New("between 1ms and 1m")
	}
	if o.Instances < 0 || o.Instances > 10_000 {
		faults["instances"] = errors.New("between 1 and 10000")
	}
	if o.BodyBytes < 0 || o.BodyBytes > 1<<30 {
		faults["body_bytes"] = errors.New("between 1B and 1GiB")
	}
	return faults
}

// Name is what messages call the plugin: the module's file without its folder.
func (o Options) Name() string { return filepath.Base(o.Module) }

// withDefaults returns the options with what was left out.
func (o Options) withDefaults() Options {
	o.Memory = cmp.Or(o.Memory, defaultMemory)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Instances = cmp.Or(o.Instances, defaultInstances)
	o.BodyBytes = cmp.Or(o.BodyBytes, defaultBodyBytes)
	return o
}

// Read reads the file of a module.
func Read(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err //nolint:wrapcheck // it names the file
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", file)
	case info.Size() > maxModule:
		return nil, fmt.Errorf("%s has %s: a module may have %s", file, bytesize.Size(info.Size()), bytesize.Size(maxModule))
	}
	return os.ReadFile(file) //nolint:wrapcheck // it names the file
}

// Plugin is a module that is ready for requests.
type Plugin struct {
	options Options
	log     *slog.Logger
	client  func(*http.Request) netip.Addr
	runtime wazero.Runtime
	code    wazero.CompiledModule
	pool    pool
}

// New compiles a module and starts one instance of it. client says who asks, where a
// trusted proxy stands in front; nil: the other end of the connection.
func New(o Options, module []byte, client func(*http.Request) netip.Addr, log *slog.Logger) (_ *Plugin, err error) {
	o = o.withDefaults()
	ctx := context.Background()
	p := &Plugin{options: o, log: log.With("module", o.Name()), client: client}
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
