package lab_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"millrace/lab"
	"millrace/lab/load"
)

// A server is loaded for a moment; the result says how it did, and its gates
// whether that can be believed.
func ExampleLoad() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	}))
	defer server.Close()
	res, err := lab.Load(context.Background(), lab.LoadOptions{Config: load.Config{
		URL: server.URL, Connections: 2, Duration: 100 * time.Millisecond,
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	values := res.Samples[0].Values
	fmt.Println("answers:", values["requests_per_second"] > 0, "errors:", values["errors"])
	// Output: answers: true errors: 0
}
