// Package millrace puts the server into another Go program: beside handlers of the
// program's own, or under them.
//
// # The fast lane for a program that has a router
//
// Two lines in place of [http.ListenAndServe]:
//
//	ln, err := millrace.Listen(":8080")
//	…
//	err = millrace.Serve(ln, router) // Gin, chi, Echo, http.ServeMux: any http.Handler
//
// Simple requests then reach the router without net/http's machinery, and
// everything that is not simple reaches it as ever. Files, images and cached
// answers of this module's handlers inside the router become hot where the program
// calls them [Public]: from the second request on they are sent without asking it.
//
// # The whole server
//
//	srv, err := millrace.New(millrace.Config{
//		Listen: []string{":8080"},
//		Sites: []millrace.Site{{Routes: map[string]millrace.Route{
//			"/":     {Files: site},     // an embed.FS
//			"/api/": {Handler: router}, // the program's own
//		}}},
//	})
//	…
//	err = srv.Run(ctx)
//
// A [Config] has fields for what programs set most, and takes YAML for the rest. A
// [Server] is an http.Handler too, so it can stand below a path of another server.
//
// # One job alone
//
// Each job is a package with an http.Handler that works under any server:
//
//   - [millrace/static]: static.New(fsys, static.Options{}), static.Open(dir, …)
//   - [millrace/cache]: cache.New(cache.To("http://127.0.0.1:5000"), cache.Deps{})
//   - [millrace/images]: images.New(images.Options{}, images.Deps{Source: files})
//   - [millrace/websocket]: websocket.New(websocket.Options{…}, websocket.Deps{})
//
// Handlers must be closed: they hold files, memory and goroutines.
//
// # What is stable
//
// This package, and the four above with their Options. What they name of other
// packages (channels.Options, rules.Rule) goes with them. Everything else may
// change with any version.
package millrace
