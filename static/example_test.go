package static_test

import (
	"embed"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"

	"millrace/static"
)

//go:embed testdata/site
var site embed.FS

// A program that carries its site within itself. Conditional requests work,
// although embedded files have no dates.
func ExampleNew() {
	files, err := fs.Sub(site, "testdata/site")
	if err != nil {
		log.Fatal(err)
	}
	h, err := static.New(files, static.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()

	// http.ListenAndServe("127.0.0.1:8080", h)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/docs/", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"), w.Header().Get("Cache-Control"))

	again := httptest.NewRequest("GET", "/docs/", nil)
	again.Header.Set("If-Modified-Since", w.Header().Get("Last-Modified"))
	w = httptest.NewRecorder()
	h.ServeHTTP(w, again)
	fmt.Println(w.Code)
	// Output:
	// 200 text/html; charset=utf-8 no-cache
	// 304
}

// A directory below a prefix of an existing server.
func ExampleOpen() {
	h, err := static.Open("testdata/site", static.Options{
		CacheControl: []static.CacheRule{{Match: "*.txt", Value: "max-age=86400"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()

	mux := http.NewServeMux()
	mux.Handle("/files/", http.StripPrefix("/files", h))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/files/robots.txt", nil))
	fmt.Println(w.Code, w.Header().Get("Cache-Control"))
	// Output: 200 max-age=86400
}
