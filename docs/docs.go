// Package docs holds the manual, so that the program has it wherever it runs.
package docs

import "embed"

// Files are the manual's pages as Markdown, in the folders of the source tree, and their
// charts.
//
//go:embed *.md *.svg coming-from/*.md decisions/*.md
var Files embed.FS
