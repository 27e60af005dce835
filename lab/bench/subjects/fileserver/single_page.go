//go:build single && page

package main

// servers are those of an executable with the page of the experiment tls alone.
func servers() map[string]newServer { return map[string]newServer{"page": page} }
