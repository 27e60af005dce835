package meter

// Plugin counts what a WebAssembly module does, of all routes that have it.
type Plugin struct {
	Module string // its file without the folder

	Requests  Counter // that an instance has begun to serve
	Busy      Gauge   // instances that serve a request now
	Instances Gauge   // how many may
	Refused   Counter // requests that found none
	Traps     Counter // calls that trapped, or did what the ABI forbids
	Timeouts  Counter // calls that computed for too long
	Uploads   Counter // requests whose body came too slowly
	Starts    Counter // instances that did not start
}

// Plugin returns the counters of a module and makes them at the first call, as Cache does.
func (m *Meters) Plugin(module string) *Plugin {
	return m.plugins.get(module, func(module string) *Plugin { return &Plugin{Module: module} })
}

// Plugins lists those that exist, ordered by module.
func (m *Meters) Plugins() []*Plugin { return m.plugins.list() }
