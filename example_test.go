package millrace_test

import (
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"

	"millrace"
)

//go:embed examples/site
var examples embed.FS

// get is the beginning of what a URL answers.
func get(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 15))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

// The whole server with the program's own handler beside embedded files.
func ExampleNew() {
	site, err := fs.Sub(examples, "examples/site")
	if err != nil {
		fmt.Println(err)
		return
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s", r.FormValue("name"))
	})
	srv, err := millrace.New(millrace.Config{
		Listen: []string{"127.0.0.1:0"},
		Sites: []millrace.Site{{Routes: map[string]millrace.Route{
			"/":      {Files: site},
			"/hello": {Handler: hello},
			"/old":   {Redirect: "/hello"},
		}}},
		YAML: "limits: {body_bytes: 1MiB}",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- srv.Run(ctx) }()

	url := srv.Addrs()[0]
	fmt.Println(get(url + "/"))
	fmt.Println(get(url + "/hello?name=Ada"))
	fmt.Println(get(url + "/old?name=Ada"))

	stop() // as a signal would: it drains
	fmt.Println(<-done)
	// Output:
	// 200 <!doctype html>
	// 200 hello Ada
	// 200 hello Ada
	// <nil>
}

// Any program with a router, by two lines.
func ExampleServe() {
	router := http.NewServeMux()
	router.HandleFunc("GET /hello/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s", r.PathValue("name"))
	})

	ln, err := millrace.Listen("127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error)
	go func() { done <- millrace.Serve(ln, router) }()

	fmt.Println(get("http://" + ln.Addr().String() + "/hello/Ada"))
	ln.Close() // running requests end first
	fmt.Println(<-done)
	// Output:
	// 200 hello Ada
	// <nil>
}

// A server without addresses is a handler: here beside those of a program that
// listens by itself.
func ExampleServer_ServeHTTP() {
	srv, err := millrace.New(millrace.Config{
		Sites: []millrace.Site{{Routes: map[string]millrace.Route{"/docs/": {Files: examples}}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	mux := http.NewServeMux()
	mux.Handle("/docs/", srv)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the program") })
	ts := httptest.NewServer(mux)
	defer ts.Close()

	fmt.Println(get(ts.URL + "/docs/examples/site/robots.txt"))
	fmt.Println(get(ts.URL + "/"))
	// Output:
	// 200 User-agent: *
	// D
	// 200 the program
}
