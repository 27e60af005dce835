package compress

import "strings"

// Worth reports whether content of a media type, as Content-Type says it, and
// of a size in bytes is worth compressing. Of types that are not known it is
// not: most of those are dense already.
func Worth(contentType string, size int64) bool {
	return MinSize <= size && size <= MaxSize && packable(contentType)
}

// packable knows the types that are text, or bytes with much repetition.
func packable(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	if strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") {
		return kind != "text/event-stream" // it has no end
	}
	switch kind {
	case "application/json", "application/json5", "application/x-ndjson", "application/jsonl", "application/json-seq",
		"application/xml", "application/yaml", "application/x-yaml", "application/toml", "application/graphql",
		"application/javascript", "application/x-javascript", "application/ecmascript", "application/wasm",
		"application/x-www-form-urlencoded", "application/sql", "application/x-subrip", "application/rtf",
		"application/cbor", "application/msgpack", "application/vnd.msgpack", "application/x-protobuf", "application/protobuf",
		"application/vnd.apple.mpegurl", "application/vnd.ms-fontobject", "application/x-tar",
		"font/ttf", "font/otf", "font/collection", "image/bmp", "image/x-icon", "image/vnd.microsoft.icon",
		"model/gltf-binary":
		return true
	}
	return false
}
