module millrace/bench/subjects

go 1.26.0

require (
	github.com/andybalholm/brotli v1.2.0
	github.com/klauspost/compress v1.20.0
	github.com/valyala/fasthttp v1.74.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/molecule-man/go-brrr v1.0.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
)
