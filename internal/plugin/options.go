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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
	// UploadTimeout is how long the module may wait for the body of a request, in all:
	// one that comes more slowly gets 408. Default 10s.
	UploadTimeout time.Duration `yaml:"upload_timeout"`
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
	defaultUpload    = 10 * time.Second
	defaultInstances = 64
	defaultBodyBytes = 1 << 20
)

const (
	pageSize  = 64 << 10 // of WebAssembly's memory
	mostPages = 65536    // 4 GiB
	// maxModule bounds a module's file: those of Go have a few MiB.
	maxModule = 64 << 20
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
	if o.UploadTimeout < 0 || o.UploadTimeout > time.Hour {
		faults["upload_timeout"] = errors.New("between 1ms and 1h")
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
	o.UploadTimeout = cmp.Or(o.UploadTimeout, defaultUpload)
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
