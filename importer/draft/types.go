package draft

import "slices"

// media are the extensions of the types that configs of servers speak of.
func media() map[string][]string {
	return map[string][]string{
		"text/html": {".html", ".htm"}, "text/css": {".css"}, "text/javascript": {".js", ".mjs"}, "text/plain": {".txt"}, "text/xml": {".xml"},
		"text/calendar": {".ics"}, "text/csv": {".csv"}, "text/vtt": {".vtt"}, "text/x-component": {".htc"}, "text/markdown": {".md"},
		"application/json": {".json"}, "application/ld+json": {".jsonld"}, "application/manifest+json": {".webmanifest"}, "application/pdf": {".pdf"}, "application/wasm": {".wasm"},
		"application/rss+xml": {".rss"}, "application/atom+xml": {".atom"}, "application/xml": {".xml"}, "application/zip": {".zip"},
		"application/vnd.ms-fontobject": {".eot"}, "font/woff": {".woff"}, "font/woff2": {".woff2"}, "font/ttf": {".ttf"}, "font/otf": {".otf"},
		"image/png": {".png"}, "image/jpeg": {".jpg", ".jpeg"}, "image/gif": {".gif"}, "image/webp": {".webp"}, "image/avif": {".avif"}, "image/svg+xml": {".svg"}, "image/x-icon": {".ico"},
		"image/bmp": {".bmp"}, "image/apng": {".apng"},
		"audio/mpeg": {".mp3"}, "audio/ogg": {".ogg", ".oga"}, "video/mp4": {".mp4"}, "video/webm": {".webm"}, "video/ogg": {".ogv"},
	}
}

// aliases are other names of the same types.
func aliases() map[string]string {
	return map[string]string{
		"application/javascript": "text/javascript", "application/x-javascript": "text/javascript", "text/x-js": "text/javascript", "text/x-javascript": "text/javascript",
		"image/jpg": "image/jpeg", "image/vnd.microsoft.icon": "image/x-icon", "image/icon": "image/x-icon", "image/ico": "image/x-icon",
		"font/truetype": "font/ttf", "font/x-woff": "font/woff", "application/x-font-ttf": "font/ttf", "application/x-font-truetype": "font/ttf",
		"font/opentype": "font/otf", "application/x-font-opentype": "font/otf", "application/x-font-otf": "font/otf", "application/font-woff": "font/woff",
		"application/x-font-woff": "font/woff", "application/font-woff2": "font/woff2", "application/x-font-woff2": "font/woff2", "font/eot": "application/vnd.ms-fontobject",
		"application/x-web-app-manifest+json": "application/manifest+json",
	}
}

// Extensions are those of files of a media type, with their dots; none if the
// type is not known.
func Extensions(name string) []string {
	if to := aliases()[name]; to != "" {
		name = to
	}
	return media()[name]
}

// TypeOf is the media type of an extension, "" if it is not known.
func TypeOf(ext string) string {
	for _, name := range []string{"application/xml", "text/html"} {
		if slices.Contains(media()[name], ext) {
			return name
		}
	}
	for name, list := range media() { // the others have one type each
		if slices.Contains(list, ext) {
			return name
		}
	}
	return ""
}
