//go:build single && ldflags

package main

// servers are those of an executable with the linker's variables alone.
func servers() map[string]newServer {
	return map[string]newServer{"ldflags": ldflags}
}
