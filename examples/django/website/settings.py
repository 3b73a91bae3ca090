"""Settings of the site."""

import os
from pathlib import Path

import django

BASE_DIR = Path(__file__).parents[1]
DEBUG = os.environ.get("DEBUG") == "true"
SECRET_KEY = os.environ.get("SECRET_KEY", "only for a developer")
ALLOWED_HOSTS = ["localhost", "127.0.0.1", *os.environ.get("ALLOWED_HOSTS", "").split()]
INSTALLED_APPS = ["orders"]
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")
MIDDLEWARE = ["django.middleware.csrf.CsrfViewMiddleware"]
ROOT_URLCONF = "orders.urls"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TIME_ZONE = "Europe/Paris"
USE_TZ = True

MAIL_BACKEND, MAILS = "django.core.mail.backends.filebased.EmailBackend", BASE_DIR / "mails"
if django.VERSION < (6, 1):
    EMAIL_BACKEND, EMAIL_FILE_PATH = MAIL_BACKEND, MAILS
else:
    MAILERS = {"default": {"BACKEND": MAIL_BACKEND, "OPTIONS": {"file_path": MAILS}}}
DEFAULT_FROM_EMAIL = "orders@example.org"
MANAGERS = [("Ada", "ada@example.org")]

TASKS = {
    "default": {
        "BACKEND": "pollconsumer.django.PollConsumerBackend",
        "QUEUES": ["default", "reports"],
        "ENQUEUE_ON_COMMIT": True,
        "OPTIONS": {"config": BASE_DIR / "config.toml", "patience": "2s"},
    }
}
