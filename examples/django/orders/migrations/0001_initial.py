from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("item", models.CharField(max_length=100)),
                ("email", models.EmailField(max_length=254)),
                ("ordered_at", models.DateTimeField(auto_now_add=True)),
                ("confirmation", models.CharField(editable=False, max_length=64)),
            ],
        ),
    ]
