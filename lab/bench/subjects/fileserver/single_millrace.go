//go:build single && millrace

package main

// servers are those of an executable with millrace's package static alone.
func servers() map[string]newServer {
	return map[string]newServer{"millrace": millraceStatic}
}
