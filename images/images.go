// Package images answers requests for pictures with the format that suits the
// browser.
package images
