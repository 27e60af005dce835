package main

import (
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
)

func ginRouter(files http.Handler) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery())
	r.GET("/api/hello/:name", func(c *gin.Context) { c.JSON(http.StatusOK, greeting{c.Param("name")}) })
	r.GET("/files/*path", gin.WrapH(files))
	return r
}

func chiRouter(files http.Handler) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Recoverer)
	r.Get("/api/hello/{name}", func(w http.ResponseWriter, r *http.Request) { hello(w, chi.URLParam(r, "name")) })
	r.Handle("/files/*", files)
	return r
}

func echoRouter(files http.Handler) http.Handler {
	e := echo.New()
	e.GET("/api/hello/:name", func(c echo.Context) error { return c.JSON(http.StatusOK, greeting{c.Param("name")}) })
	e.GET("/files/*", echo.WrapHandler(files))
	return e
}

func mux(files http.Handler) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /api/hello/{name}", func(w http.ResponseWriter, r *http.Request) { hello(w, r.PathValue("name")) })
	m.Handle("/files/", files)
	return m
}

func hello(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(greeting{name}) // an error means that the client is gone
}
