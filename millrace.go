// Package millrace serves files, images, caches, proxies and WebSockets from
// within another Go program.
package millrace
