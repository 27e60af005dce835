package lane

import "millrace/internal/bytesize"

// Options of the fast lane. The zero value is on, with the default budget.
type Options struct {
	// Off sends every request through net/http.
	Off bool `yaml:"off"`
	// Memory is how many bytes of finished answers are kept. Default 64MiB.
	Memory bytesize.Size `yaml:"memory"`
}
