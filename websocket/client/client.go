// Package client holds the browser's side of the channels: a plain ES module
// and its types. It is served at …/client.js by every route with channels.
package client

import _ "embed"

// Module is the ES module.
//
//go:embed millrace.js
var Module []byte

// Types are its TypeScript declarations.
//
//go:embed millrace.d.ts
var Types []byte
