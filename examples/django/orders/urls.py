"""Pages of the site."""

from django.urls import path

from . import views

urlpatterns = [path("", views.new, name="new"), path("orders/<int:number>/", views.order, name="order")]
