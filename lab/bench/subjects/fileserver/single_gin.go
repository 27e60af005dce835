//go:build single && gin

package main

// servers are those of an executable with Gin alone.
func servers() map[string]newServer {
	return map[string]newServer{"gin": ginServer}
}
