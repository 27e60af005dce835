// Package ginsite is the site in Gin: StaticFS and one JSON method.
package ginsite

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"millrace/bench/subjects/internal/site"
)

// New serves files with Gin in release mode and without its log. The method is
// a middleware: Gin's router allows no route beside StaticFS at the top, which
// is a catch-all.
func New(files http.FileSystem, v *site.Verification) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		if c.Request.URL.Path == site.VerifyPath {
			c.AbortWithStatusJSON(http.StatusOK, v)
		}
	})
	engine.StaticFS("/", files)
	return engine
}
