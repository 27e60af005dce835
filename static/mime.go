package static

import (
	"path"
	"strings"
)

// mediaType is what a file's extension says.
type mediaType struct {
	name         string
	compressible bool
	page         bool // HTML
}

const charset = "; charset=utf-8"

// unknownType is not sniffed by anybody: nosniff goes with it.
var unknownType = mediaType{name: "application/octet-stream"}

// TypeOf is the media type that a file of that name is served with, and whether
// such files are worth compressing.
func TypeOf(file string) (name string, compressible bool) {
	t := typeOf(file)
	return t.name, t.compressible
}

// typeOf finds the media type by the extension, in any letter case. The table
// is our own: the operating system's differ, and answers must not.
func typeOf(file string) mediaType {
	if t, ok := mediaTypes[strings.ToLower(path.Ext(file))]; ok {
		return t
	}
	return unknownType
}

func text(name string) mediaType  { return mediaType{name: name + charset, compressible: true} }
func packs(name string) mediaType { return mediaType{name: name, compressible: true} }
func dense(name string) mediaType { return mediaType{name: name} }

var mediaTypes = map[string]mediaType{
	".html":  {name: "text/html" + charset, compressible: true, page: true},
	".htm":   {name: "text/html" + charset, compressible: true, page: true},
	".xhtml": {name: "application/xhtml+xml" + charset, compressible: true, page: true},

	// Code and data. RFC 9239 makes text/javascript the type of scripts.
	".css":         text("text/css"),
	".js":          text("text/javascript"),
	".mjs":         text("text/javascript"),
	".cjs":         text("text/javascript"),
	".json":        packs("application/json"),
	".map":         packs("application/json"),
	".json5":       packs("application/json5"),
	".jsonld":      packs("application/ld+json"),
	".geojson":     packs("application/geo+json"),
	".webmanifest": packs("application/manifest+json"),
	".ndjson":      packs("application/x-ndjson"),
	".xml":         text("application/xml"),
	".xsl":         text("application/xslt+xml"),
	".xsd":         text("application/xml"),
	".rss":         text("application/rss+xml"),
	".atom":        text("application/atom+xml"),
	".kml":         packs("application/vnd.google-earth.kml+xml"),
	".gpx":         packs("application/gpx+xml"),
	".yaml":        text("application/yaml"),
	".yml":         text("application/yaml"),
	".toml":        text("application/toml"),
	".wasm":        packs("application/wasm"),
	".graphql":     text("application/graphql"),

	// Text.
	".txt":  text("text/plain"),
	".log":  text("text/plain"),
	".md":   text("text/markdown"),
	".csv":  text("text/csv"),
	".tsv":  text("text/tab-separated-values"),
	".ics":  text("text/calendar"),
	".vcf":  text("text/vcard"),
	".vtt":  text("text/vtt"),
	".srt":  text("application/x-subrip"),
	".rtf":  packs("application/rtf"),
	".diff": text("text/x-diff"),

	// Images.
	".svg":  text("image/svg+xml"),
	".png":  dense("image/png"),
	".apng": dense("image/apng"),
	".jpg":  dense("image/jpeg"),
	".jpeg": dense("image/jpeg"),
	".jpe":  dense("image/jpeg"),
	".jfif": dense("image/jpeg"),
	".gif":  dense("image/gif"),
	".webp": dense("image/webp"),
	".avif": dense("image/avif"),
	".jxl":  dense("image/jxl"),
	".heic": dense("image/heic"),
	".heif": dense("image/heif"),
	".hif":  dense("image/heif"),
	".tif":  dense("image/tiff"),
	".tiff": dense("image/tiff"),
	".bmp":  packs("image/bmp"),
	".ico":  packs("image/x-icon"),
	".cur":  packs("image/x-icon"),

	// Fonts (RFC 8081).
	".woff":  dense("font/woff"),
	".woff2": dense("font/woff2"),
	".ttf":   packs("font/ttf"),
	".otf":   packs("font/otf"),
	".ttc":   packs("font/collection"),
	".eot":   packs("application/vnd.ms-fontobject"),

	// Sound and moving images.
	".mp3":  dense("audio/mpeg"),
	".m4a":  dense("audio/mp4"),
	".aac":  dense("audio/aac"),
	".ogg":  dense("audio/ogg"),
	".oga":  dense("audio/ogg"),
	".opus": dense("audio/ogg"),
	".flac": dense("audio/flac"),
	".wav":  dense("audio/wav"),
	".weba": dense("audio/webm"),
	".mid":  dense("audio/midi"),
	".mp4":  dense("video/mp4"),
	".m4v":  dense("video/mp4"),
	".webm": dense("video/webm"),
	".ogv":  dense("video/ogg"),
	".mov":  dense("video/quicktime"),
	".avi":  dense("video/x-msvideo"),
	".mkv":  dense("video/x-matroska"),
	".mpeg": dense("video/mpeg"),
	".m3u8": packs("application/vnd.apple.mpegurl"),
	".mpd":  packs("application/dash+xml"),
	".m4s":  dense("video/iso.segment"),
	".ts":   dense("video/mp2t"), // a transport stream; TypeScript is not sent to browsers

	// Documents.
	".pdf":  dense("application/pdf"),
	".epub": dense("application/epub+zip"),
	".doc":  dense("application/msword"),
	".docx": dense("application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
	".xls":  dense("application/vnd.ms-excel"),
	".xlsx": dense("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
	".ppt":  dense("application/vnd.ms-powerpoint"),
	".pptx": dense("application/vnd.openxmlformats-officedocument.presentationml.presentation"),
	".odt":  dense("application/vnd.oasis.opendocument.text"),
	".ods":  dense("application/vnd.oasis.opendocument.spreadsheet"),
	".odp":  dense("application/vnd.oasis.opendocument.presentation"),

	// Archives and models.
	".zip":  dense("application/zip"),
	".gz":   dense("application/gzip"),
	".tgz":  dense("application/gzip"),
	".zst":  dense("application/zstd"),
	".bz2":  dense("application/x-bzip2"),
	".xz":   dense("application/x-xz"),
	".7z":   dense("application/x-7z-compressed"),
	".rar":  dense("application/vnd.rar"),
	".tar":  packs("application/x-tar"),
	".gltf": packs("model/gltf+json"),
	".glb":  packs("model/gltf-binary"),
}
