// Command caddy is Caddy with its standard modules, as its documentation builds
// it, for the experiments tls and proxy. Its module is its own: what Caddy depends on is
// nobody else's affair.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard" // plugs itself in
)

func main() { caddycmd.Main() }
