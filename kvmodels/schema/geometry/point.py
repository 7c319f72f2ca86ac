"""A place on the earth, as a value of models.

Rules of this module: latitude and longitude are never told apart by their position, because GeoJSON, Redis and
GeoDjango write the longitude first, and other programs the latitude. Both orders are valid numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kvmodels._support.naming import show_public_path


class GeoPoint(BaseModel, frozen=True):
    """A place on the earth, given in degrees by name.

    A point is immutable and hashable. Its JSON form is ``{"lat": 46.95, "lon": 7.44}``; it also accepts a point of
    GeoJSON. A bare tuple is refused, because its order would be a guess.

    Attributes:
        lat: latitude, from -90 to 90.
        lon: longitude, from -180 to 180; both are the same meridian.

    Examples:
        >>> GeoPoint(lat=46.95, lon=7.44)
        GeoPoint(lat=46.95, lon=7.44)
        >>> GeoPoint.model_validate({"type": "Point", "coordinates": [7.44, 46.95]})
        GeoPoint(lat=46.95, lon=7.44)
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    lat: Annotated[float, Field(ge=-90, le=90, description="Latitude in degrees.")]
    lon: Annotated[float, Field(ge=-180, le=180, description="Longitude in degrees.")]

    @model_validator(mode="before")
    @classmethod
    def _from_other_forms(cls, given: Any) -> Any:
        if isinstance(given, (tuple, list)):
            raise ValueError(
                "a tuple or list does not say which number is the latitude: "
                'write GeoPoint(lat=46.95, lon=7.44), or {"lat": 46.95, "lon": 7.44}'
            )
        if isinstance(given, Mapping) and "coordinates" in given:
            return _values_of_geojson(cast("Mapping[str, Any]", given))
        return cast("object", given)


def _values_of_geojson(given: Mapping[str, Any]) -> dict[str, Any]:
    coordinates = given["coordinates"]
    if given.get("type") != "Point" or not isinstance(coordinates, (tuple, list)):
        raise ValueError('the GeoJSON is not a point: {"type": "Point", "coordinates": [longitude, latitude]}')
    numbers = cast("list[Any]", coordinates)
    if len(numbers) not in (2, 3):  # the third is the altitude
        raise ValueError("the coordinates of a GeoJSON point are [longitude, latitude]")
    return {"lat": numbers[1], "lon": numbers[0]}


show_public_path(GeoPoint)
